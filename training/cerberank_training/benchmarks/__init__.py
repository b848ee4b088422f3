"""What `cerberank bench` measures, one benchmark a file; each turns `Settings` into a `Report`."""
