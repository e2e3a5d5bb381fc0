"""Stacks: data, which every deployment retains; service, which can be deleted and deployed again; and the gateway."""
