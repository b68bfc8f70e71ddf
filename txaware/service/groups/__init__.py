"""Groups that share topics: who is a member, and who has which partition."""
