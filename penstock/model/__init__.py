"""Frozen values that every layer shares."""

from penstock.model._names import check_name
from penstock.model._plog_id import PlogId

__all__ = ["PlogId", "check_name"]
