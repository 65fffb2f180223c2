"""Trees as arrays: the answers are the library's."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier

from diagnosis.irregularity.trees import LEAF, Trees


def grown(seed: int, criterion: str = "gini", features: int = 6, **fields: Any) -> RandomForestClassifier:
    draws = np.random.default_rng(seed)
    samples = draws.standard_normal((600, features)).astype(np.float32)
    samples[:, 0] = draws.integers(0, 3, 600)
    labels = samples[:, 1] * samples[:, 2] + 0.3 * draws.standard_normal(600) > 0
    return RandomForestClassifier(12, criterion=criterion, random_state=seed, **fields).fit(samples, labels)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(["gini", "entropy"]), st.sampled_from([None, 1, 4]), st.integers(1, 2000))
def test_probabilities_are_the_librarys(seed: int, criterion: str, depth: int | None, count: int) -> None:
    forest = grown(seed, criterion, max_depth=depth)
    samples = np.random.default_rng(seed + 1).standard_normal((count, 6)).astype(np.float32)
    samples[:, 0] = np.rint(samples[:, 0])
    assert np.allclose(Trees.of(forest).probability(samples), forest.predict_proba(samples)[:, 1], rtol=0, atol=1e-12)


def test_a_sample_at_a_threshold_goes_where_the_library_sends_it() -> None:
    forest = grown(3)
    thresholds = [tree.tree_.threshold[tree.tree_.feature >= 0] for tree in forest.estimators_]
    values = np.concatenate(thresholds).astype(np.float32)
    samples = np.repeat(values[:, None], 6, axis=1)
    samples = np.concatenate([samples, np.nextafter(samples, np.float32(9)), np.nextafter(samples, np.float32(-9))])
    assert np.allclose(Trees.of(forest).probability(samples), forest.predict_proba(samples)[:, 1], rtol=0, atol=1e-12)


def test_a_single_leaf_and_no_samples_are_fine() -> None:
    leaf = Trees(
        np.zeros(1, np.int32), np.array([LEAF], np.int16), np.zeros(1), np.zeros(1, np.int32), np.array([0.25])
    )
    assert leaf.probability(np.zeros((3, 0), np.float32)).tolist() == [0.25] * 3
    assert len(Trees.of(grown(1)).probability(np.zeros((0, 6), np.float32))) == 0


def test_shifted_thresholds_meet_shifted_samples() -> None:
    trees = Trees.of(grown(4))
    shift = np.array([0.0, 1.0, -2.0, 0.5, 0.25, 0.0])
    samples = np.random.default_rng(5).integers(-8, 8, (500, 6)).astype(np.float32)
    assert trees.shifted(shift).probability(samples + shift.astype(np.float32)).tolist() == pytest.approx(
        trees.probability(samples).tolist()
    )
    assert trees.shifted(np.zeros(6)).threshold.tolist() == trees.threshold.tolist()


def test_too_few_features_are_refused() -> None:
    trees = Trees.of(grown(6))
    with pytest.raises(ValueError, match=r"the trees need 6 features, the samples have shape \(3, 5\)"):
        trees.probability(np.zeros((3, 5), np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": lambda t: np.zeros_like(t.left)}, "do not come after it"),
        ({"left": lambda t: t.left + len(t.left)}, "do not come after it"),
        ({"root": lambda t: t.root - 1}, "begins at a node that there is not"),
        ({"root": lambda t: t.root[:0]}, "begins at a node that there is not"),
        ({"feature": lambda t: t.feature - 1}, "compares what there is not"),
        ({"threshold": lambda t: t.threshold * np.nan}, "compares what there is not"),
        ({"threshold": lambda t: t.threshold + 1e300}, "compares what there is not"),
        ({"threshold": lambda t: t.threshold[1:]}, "differ in length"),
        ({"abnormal": lambda t: t.abnormal + 1.5}, "outside 0 to 1"),
    ],
)
def test_arrays_that_are_no_trees_are_refused(changes: dict[str, Any], message: str) -> None:
    trees = Trees.of(grown(7))
    with pytest.raises(ValueError, match=message):
        replace(trees, **{name: change(trees) for name, change in changes.items()})
