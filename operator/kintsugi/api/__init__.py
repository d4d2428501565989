"""What users write and read: the models behind the CRDs, and nothing that acts."""
