#!/usr/bin/env python3
"""Writes tests/data/tables/*.csv from scikit-learn's package and prints the figures that tests/table_test.cpp holds:
scikit-learn's linear models on the split and the standardised features of TableSet. Needs scikit-learn."""
import pathlib

import numpy
from sklearn import datasets
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from sklearn.preprocessing import StandardScaler

TABLES = pathlib.Path(__file__).parent.parent / "data" / "tables"
MASK = 0xFFFFFFFF


def philox(seed, counter):
    c, k = [counter & MASK, counter >> 32, 0, 0], [seed & MASK, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def key_of(seed, counter):
    block = philox(seed, counter)
    return block[1] << 32 | block[0]


def words(seed):
    """The stream that data::split draws from (SampleRandom of data/random.h)."""
    samples = 0x73616D706C657321
    key = key_of(key_of(seed ^ samples, 0) ^ samples, 0x7461626C65)
    counter = 0
    while True:
        yield from philox(key, counter)
        counter += 1


def test_rows(groups, share, seed):
    """The rows that data::split takes for testing; groups: one value per row, None for all the same."""
    n = len(groups)
    order, stream = list(range(n)), words(seed)
    for i in range(n - 1, 0, -1):
        j = ((next(stream) << 32 | next(stream)) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    values = sorted(set(groups), key=str)
    sizes = {v: list(groups).count(v) for v in values}
    quota = {v: int(share * sizes[v]) for v in values}
    wanted = max(1, min(n - 1, int(share * n + 0.5))) - sum(quota.values())
    for v in sorted(values, key=lambda v: (quota[v] - share * sizes[v], values.index(v))):
        if wanted > 0 and quota[v] + 1 < sizes[v]:
            quota[v] += 1
            wanted -= 1
    taken = []
    for row in order:
        if quota[groups[row]] > 0:
            quota[groups[row]] -= 1
            taken.append(row)
    return sorted(taken)


def write(name, columns, rows):
    lines = [",".join(columns)] + [",".join(str(cell) for cell in row) for row in rows]
    (TABLES / name).write_text("\n".join(lines) + "\n")


def plain(value):
    return int(value) if float(value).is_integer() else float(value)


def parts(x, y, groups, share, seed):
    test = test_rows(groups, share, seed)
    train = [i for i in range(len(y)) if i not in set(test)]
    scaler = StandardScaler().fit(x[train])
    print("  test rows:", len(test), "first", test[:8], "sum", sum(test))
    return scaler.transform(x[train]), y[train], scaler.transform(x[test]), y[test]


def classify(name, x, y, groups):
    print(name)
    x_train, y_train, x_test, y_test = parts(x, y, groups, 0.3, 7)
    model = LogisticRegression(C=1.0, tol=1e-12, max_iter=100000).fit(x_train, y_train)
    print("  accuracy", repr(accuracy_score(y_test, model.predict(x_test))), "log loss",
          repr(log_loss(y_test, model.predict_proba(x_test))), "coefficient", repr(model.coef_[0][0]))


def main():
    numpy.set_printoptions(precision=17)
    iris, wine, diabetes = datasets.load_iris(), datasets.load_wine(), datasets.load_diabetes(scaled=False)
    species = [str(iris.target_names[i]) for i in iris.target]
    write("iris.csv", ["sepal_length", "sepal_width", "petal_length", "petal_width", "species"],
          [[*map(plain, x), s] for x, s in zip(iris.data, species)])
    write("wine.csv", [*wine.feature_names, "cultivar"], [[*map(plain, x), int(y)] for x, y in zip(wine.data, wine.target)])
    write("diabetes.csv", [*diabetes.feature_names, "progression"],
          [[*map(plain, x), plain(y)] for x, y in zip(diabetes.data, diabetes.target)])

    classify("iris", iris.data, iris.target, species)
    classify("wine", wine.data, wine.target, [str(y) for y in wine.target])
    print("diabetes")
    x_train, y_train, x_test, y_test = parts(diabetes.data, diabetes.target, [None] * len(diabetes.target), 0.2, 3)
    model = LinearRegression().fit(x_train, y_train)
    predicted = model.predict(x_test)
    print("  r2", repr(r2_score(y_test, predicted)), "rmse", repr(mean_squared_error(y_test, predicted) ** 0.5),
          "coefficient of bmi", repr(model.coef_[2]), "intercept", repr(model.intercept_))


if __name__ == "__main__":
    main()
