"""Graph views: data for the web page and Google's Model Explorer."""
