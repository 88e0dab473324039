"""Other people's software on our accelerator and our ops; each module needs the package it is named after."""
