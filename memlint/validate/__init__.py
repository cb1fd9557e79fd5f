"""What a step really takes on a device, and how far the Estimate is from it."""
