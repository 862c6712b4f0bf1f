"""How a driver says that it cannot obey."""


class Declined(Exception):
    """This driver cannot obey what `what` names; the message begins with that name."""

    def __init__(self, what, message):
        super().__init__(message)
        self.what = what


def offered(what, value, values, why=lambda what, value: None):
    """The value, which must be one of these; declined otherwise, with the reason that `why` gives."""
    if value not in values:
        raise Declined(what, with_reason("%s: must be one of %s; got %r." % (
            what, ", ".join(map(str, values)) or "none", value), why(what, value)))
    return value


def with_reason(rule, reason):
    return rule + " " + reason if reason else rule
