"""The suite file: what it means, where it is wrong, and the steps that it stands for."""
