"""`bench broker`: Tidegate beside Mosquitto."""
