"""Where purge and tasks meet: a table purge as a task behavior. The only part of `purge` that knows tasks."""

from delegation.purge.behavior.attempt import watched
from delegation.purge.behavior.limits import Limits
from delegation.purge.behavior.options import InvalidPurgeProperty, PurgePropertyNotAllowed, options_of
from delegation.purge.behavior.parameters import KIND, KINDS, PLAN_KIND, TablePurge, identifier_text, purge_id
from delegation.purge.behavior.relation import again, obstacle, replays
from delegation.purge.behavior.run import INLINE, SPARK, PurgeBehavior

__all__ = [
    "INLINE",
    "KIND",
    "KINDS",
    "PLAN_KIND",
    "SPARK",
    "InvalidPurgeProperty",
    "Limits",
    "PurgeBehavior",
    "PurgePropertyNotAllowed",
    "TablePurge",
    "again",
    "identifier_text",
    "obstacle",
    "options_of",
    "purge_id",
    "replays",
    "watched",
]
