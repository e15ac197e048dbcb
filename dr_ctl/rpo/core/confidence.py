"""How far a mean may be off. Needs no NumPy: a verdict's schema is told where there is none."""

from typing import Final

Z: Final = 1.959964


def t_value(freedom: int) -> float:
    """Student's t for a two-sided 95 %, by Cornish and Fisher's expansion: 0.2 % off at 5 degrees, less above."""
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + first / freedom + second / freedom**2
