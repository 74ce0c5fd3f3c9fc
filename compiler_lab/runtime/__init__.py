"""What makes stages' results callable: autograd around a partition, building and loading kernels."""
