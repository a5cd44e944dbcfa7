"""What pyproject.toml cannot say: the folder `data/` is `labkit/data` in the wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["labkit", "labkit.*"]), "labkit.data"],
    package_dir={"labkit.data": "data"},
    package_data={"labkit": ["py.typed"], "labkit.data": ["**/*"]},
)
