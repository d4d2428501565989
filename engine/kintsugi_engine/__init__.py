"""The engine side of Kintsugi: what runs inside the pods that serve the model."""
