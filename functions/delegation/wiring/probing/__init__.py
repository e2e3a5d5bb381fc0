"""The probe of the front."""
