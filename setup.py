"""What pyproject.toml cannot say: where `data/` and `notebooks/` stand in the wheel."""

from setuptools import find_namespace_packages, find_packages, setup

folders = ["labkit.data", *(f"labkit.data.{name}" for name in find_namespace_packages("data"))]

setup(
    packages=[
        *find_packages(include=["labkit", "labkit.*", "classroom", "classroom.*"]),
        *folders,
        "classroom.notebooks",
    ],
    package_dir={"labkit.data": "data", "classroom.notebooks": "notebooks"},
    package_data={
        "labkit": ["py.typed"],
        "classroom.pages": ["share/**/*", "live/*.js", "live/*.css"],
        "classroom.notebooks": ["**/*.ipynb"],
        **{name: ["*"] for name in folders},
    },
)
