"""Who asks: bearer tokens and the users that they stand for. What a user may do is not checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class User:
    """A user, as admission webhooks are told of it."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)

    @classmethod
    def service_account(cls, namespace: str, name: str) -> Self:
        """Return the user that a service account is."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return cls(f"system:serviceaccount:{namespace}:{name}", groups)

    def info(self) -> dict[str, Any]:
        """Return the `userInfo` of an AdmissionReview."""
        return {"username": self.name, "groups": list(self.groups)}


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Which token stands for whom."""

    users: Mapping[str, User] = field(default_factory=dict)

    def user(self, authorization: str | None) -> User | None:
        """Return the user of an `Authorization` header, None for nobody's."""
        scheme, _, token = (authorization or "").partition(" ")
        return self.users.get(token.strip()) if scheme == "Bearer" else None
