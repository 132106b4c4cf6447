import sys

FACTORS = {"in": 2.54, "lb": 0.4536}
print(float(sys.argv[1]) * FACTORS[sys.argv[2]])
