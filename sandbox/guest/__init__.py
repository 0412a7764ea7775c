"""What runs inside the sandbox. Standard library only; mounted alone, without the rest of the project."""
