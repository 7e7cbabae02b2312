"""`tidegate bench guard`: what a guard in front of Mosquitto adds, in time, CPU and memory."""
