from setuptools import setup

setup(
    name="orders",
    install_requires=["kafka-python==2.0.2", 'aiokafka[lz4]==0.11.0; python_version > "3.8"'],
)
