"""The toy steps, as the catalog finds them."""

from tests import toy_steps

STEP = tuple(toy_steps.KINDS.values())
