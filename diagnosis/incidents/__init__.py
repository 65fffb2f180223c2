"""All evidence on one fault joined into one answer."""
