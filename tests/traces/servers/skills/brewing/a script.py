print("brew")
