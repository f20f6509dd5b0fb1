import unittest

from money import split, total, with_tax


class TestMoney(unittest.TestCase):
    def test_split(self) -> None:
        self.assertEqual(split(100, 3), [34, 33, 33])

    def test_total(self) -> None:
        self.assertEqual(total([5, 10, 20]), 35)

    def test_with_tax(self) -> None:
        self.assertEqual(with_tax(200, 19), 238)
