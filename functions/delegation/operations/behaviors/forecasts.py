"""The forecast of a task's plan: what its execution deletes, how long that takes and what it costs."""

from delegation.attempts.details import PlanDetails
from delegation.storage.base import ObjectNotFound, PlanStore
from delegation.tasks.life.model import Status, Task
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.errors import PlanTampered
from delegation.worksets.forecast import Forecast, ForecastSettings, forecast
from delegation.worksets.index import load_index, merge_findings


def forecast_of(
    task: Task, details: type[PlanDetails], plans: PlanStore, settings: ForecastSettings, *, is_dry_run: bool
) -> Forecast | None:
    """Return the forecast of a task's plan or of a dry run; None without a plan, and once it was deleted.

    That of a dry run that ended is in its record, without sample paths, and outlives the plan. Any other is made from
    the plan's index, for the engine of the present attempt or the one that the plan's size calls for. Raises
    PlanTampered and the store's errors.
    """
    if is_dry_run and task.status is Status.SUCCESS and task.result_extended is not None:
        return Forecast.model_validate_json(task.result_extended)
    segments = details.of(task).plan_segments
    if not segments:
        return None
    try:
        indexes = [load_index(plans, segment) for segment in segments]
    except PlanTampered as error:
        if isinstance(error.__cause__, ObjectNotFound):
            return None
        raise
    files = sum(index.files_planned for index in indexes)
    return forecast(indexes, merge_findings(indexes), settings, engine=_engine(task, files, settings))


def _engine(task: Task, files: int, settings: ForecastSettings) -> EngineChoice:
    if task.engine == "inline":
        return "inline"
    if task.engine == "spark":
        return "spark"
    return "inline" if files <= settings.inline_max_files else "spark"
