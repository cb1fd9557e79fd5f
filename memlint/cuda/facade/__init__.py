"""The simulated GPU as the program sees it: tensors, devices, `torch.cuda`, saved files."""
