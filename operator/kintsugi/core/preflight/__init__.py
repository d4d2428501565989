"""The rules that a deployment is checked by before a pod is made: data with examples, and the questions asked of them."""
