"""A metric with a mistake."""


def right(outputs, labels):
    return (outputs["y"].argmax(1) == labels["digit"]).mean()
