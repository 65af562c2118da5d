"""From a trained policy to one verified ONNX file."""
