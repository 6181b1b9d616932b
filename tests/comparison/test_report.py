"""What lies beside the page: of an earlier call nothing is left, of others everything."""

import pytest

from seqloom.comparison.report import drawn_before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"pictures": ["pairs.svg", "../up.svg", "plan.json"]}', {"pairs.svg", "up.svg"}),
        ('{"pictures": [3]}', set()),
        ('{"pictures": null}', set()),
        ("{}", set()),
        ("[]", set()),
        ("{", set()),
    ],
)
def test_only_pictures_of_an_earlier_call_are_taken_away(text, expected, tmp_path):
    assert drawn_before(tmp_path) == set()
    (tmp_path / "comparison.json").write_text(text)
    assert drawn_before(tmp_path) == expected
