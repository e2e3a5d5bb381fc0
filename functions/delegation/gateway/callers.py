"""Who calls the catalog through the gateway."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GatewayCaller:
    """The caller of a request; what is done in its name is done with its own `authorization` header.

    `principal` is the verified principal of its token, None if the gateway has no key to verify tokens with;
    `realm` is the value of its realm header. `roles` are the principal roles that its verified token names.
    """

    principal: str | None
    authorization: str | None = field(default=None, repr=False)
    realm: str | None = None
    roles: frozenset[str] = frozenset()
