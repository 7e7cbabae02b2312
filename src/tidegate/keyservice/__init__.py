"""The key topic manager: topic keys made, shared, released and rotated; master keys; `tidegate ktm`."""
