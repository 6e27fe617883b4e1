"""The layers of a trained model for prediction, in numpy: what `layers` computes in evaluation, without torch."""
