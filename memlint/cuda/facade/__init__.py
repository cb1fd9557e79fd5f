"""What the program sees of the simulated GPU: tensors, devices, `torch.cuda`, saved files."""
