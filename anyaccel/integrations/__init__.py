"""Integrations that make other packages use our accelerator and ops; each module needs the package it is named after."""
