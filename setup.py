"""What pyproject.toml cannot say: the folder `data/` is `labkit/data` in the wheel."""

from setuptools import find_namespace_packages, find_packages, setup

folders = ["labkit.data", *(f"labkit.data.{name}" for name in find_namespace_packages("data"))]

setup(
    packages=[*find_packages(include=["labkit", "labkit.*", "classroom", "classroom.*"]), *folders],
    package_dir={"labkit.data": "data"},
    package_data={
        "labkit": ["py.typed"],
        "classroom.pages": ["share/**/*"],
        **{name: ["*"] for name in folders},
    },
)
