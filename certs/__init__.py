"""The webhook's certificates: made, kept in a Secret, trusted by the webhook configurations, served."""
