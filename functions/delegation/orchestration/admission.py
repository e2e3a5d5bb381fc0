"""What the dispatcher does with a batch of messages (`tasks.admission` decides which tasks start)."""

from dataclasses import dataclass, field

from delegation.orchestration.dispatch import Dispatcher, parse
from delegation.tasks.admission import Admission, unannounced

__all__ = ["Admission", "Inbox", "unannounced"]


@dataclass(slots=True)
class Inbox:
    """What the dispatcher does with a batch of messages: it starts executions, then admits once for all the others."""

    dispatcher: Dispatcher
    admission: Admission
    _ended: set[str] = field(default_factory=set)

    def take(self, body: str) -> str:
        """Start the execution of a dispatch, or remember that tasks may start; return which. Raises like `start`.

        While everything is paused none is started; the sweeper sends another dispatch after the pause.
        """
        task_id, n = parse(body)
        if n == 0:
            self._ended.add(task_id)
            return "admission"
        if self.admission.is_paused:
            return "paused"
        return "started" if self.dispatcher.start_execution(task_id, n) else "closed"

    def admit(self) -> int:
        """Admit what may start, if a message of the batch asked for it, and return how many tasks; see Admission."""
        ended, self._ended = self._ended, set()
        return self.admission.run(ended) if ended else 0
