"""Lists, in pages of one moment."""

import secrets
from dataclasses import dataclass
from typing import Final

from embedded.apiserver.errors import expired, too_new
from embedded.apiserver.resources import Target
from embedded.apiserver.selectors import anything, field_selector, field_terms, label_selector
from embedded.apiserver.store import Store, Stored

_SNAPSHOTS_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Attributes:
        items: the objects.
        version: resource version of the whole list.
        token: to ask for the rest with, empty at the end.
        left: how many objects come after these; 0 where that is not told.
    """

    items: list[Stored]
    version: int
    token: str = ""
    left: int = 0


class Lists:
    """Lists the objects of a store, and remembers what is left of those that were only begun."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: dict[str, tuple[list[Stored], int, bool]] = {}

    def page(
        self,
        target: Target,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        at_least: int = 0,
    ) -> Page:
        """Return the objects of a collection, a page of them where a limit is set.

        Later pages are of the same moment as the first one.

        Args:
            target: the collection.
            labels: label selector.
            fields: field selector.
            limit: most objects of a page, 0 for all.
            token: of the page before.
            at_least: resource version that the list must not be older than.

        Raises:
            ApiError: 400 for a selector that cannot be read; 410 for a token that is not remembered any more; 504 for a
                version that is yet to come.
        """
        if at_least > self._store.version:
            raise too_new(at_least, self._store.version)
        if token:
            if token not in self._snapshots:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            rest, version, counted = self._snapshots[token]
        else:
            rest, version = self._selected(target, labels, fields), self._store.version
            counted = not labels and not fields
        if not limit or len(rest) <= limit:
            return Page(rest, version)
        return Page(
            rest[:limit], version, self._remember(rest[limit:], version, counted), counted * (len(rest) - limit)
        )

    def _selected(self, target: Target, labels: str, fields: str) -> list[Stored]:
        by_label = label_selector(labels)
        terms = field_terms(fields, target.resource)
        by_field = field_selector(terms)
        equal = [(path, value) for path, is_equal, value in terms if is_equal]
        found = self._store.collection(target.resource).all(target.namespace, equal)
        if by_label is anything and by_field is anything:
            return found
        return [one for one in found if by_label(one.item) and by_field(one.item)]

    def _remember(self, rest: list[Stored], version: int, counted: bool) -> str:
        if len(self._snapshots) >= _SNAPSHOTS_KEPT:
            self._snapshots.pop(next(iter(self._snapshots)))
        token = secrets.token_urlsafe()
        self._snapshots[token] = (rest, version, counted)
        return token
