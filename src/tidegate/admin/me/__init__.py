"""A person about their own data: who can read it, who has read it, what they have said of it, and all of it at once."""
