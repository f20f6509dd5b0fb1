import unittest

from dates import DAYS, day_of_year, days_in, is_leap


class TestDates(unittest.TestCase):
    def test_1_days(self) -> None:
        self.assertEqual(sum(DAYS), 365)

    def test_2_is_leap(self) -> None:
        self.assertTrue(is_leap(2000))
        self.assertFalse(is_leap(1900))

    def test_3_days_in(self) -> None:
        self.assertEqual(days_in(2024, 2), 29)
        self.assertEqual(days_in(2023, 4), 30)

    def test_4_day_of_year(self) -> None:
        self.assertEqual(day_of_year(2024, 12, 31), 366)
