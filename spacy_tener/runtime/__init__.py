"""numpy counterparts of `layers` for prediction without torch: same weights, same outputs as in evaluation."""
