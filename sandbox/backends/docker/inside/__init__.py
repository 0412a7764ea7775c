"""What runs inside the container: shipped in its image, standard library and the guest only."""
