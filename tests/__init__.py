"""Claims about oracle and impl. Start at house/ for the rules of the repository itself."""
