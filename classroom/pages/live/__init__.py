"""Live pages: demos that compute in the page itself, without a server and without a request."""
